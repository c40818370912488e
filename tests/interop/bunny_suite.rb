# What services in Ruby do with Bunny, one method per claim: ruby bunny_suite.rb URL CLAIM
# Ends with code 0 when the claim holds; else the error stands on standard error.

require "bigdecimal"
require "bunny"
require "timeout"

TIMEOUT_S = 20

def unique(name) = "#{name}-ruby-#{Process.pid}-#{rand(1 << 32)}"

def same(found, wanted, what = "found")
  raise "#{what}: #{found.inspect}, not #{wanted.inspect}" unless found == wanted
end

def fails_with(error)
  yield
rescue error => e
  e
else
  raise "nothing was raised instead of #{error}"
end

def next_of(inbox) = Timeout.timeout(TIMEOUT_S) { inbox.pop }

# What one consumer of the queue gets, as [delivery, properties, body].
def consume(queue, **options)
  inbox = Queue.new
  consumer = queue.subscribe(**options) { |*delivery| inbox << delivery }
  [inbox, consumer]
end

def bodies(inbox, count) = Array.new(count) { next_of(inbox)[2] }

# On a channel in confirm mode.
def publish(exchange, body, key, **options)
  exchange.publish(body, routing_key: key, **options)
  same(exchange.wait_for_confirms, true, "confirmed")
end

module Claims
  module_function

  def a_message_goes_round(connection)
    channel = connection.create_channel
    queue = channel.queue("", exclusive: true)
    raise "a name of its own: #{queue.name}" unless queue.server_named? && queue.name.start_with?("amq.gen-")
    inbox, = consume(queue)
    queue.publish("hello")
    delivery, properties, body = next_of(inbox)
    same(body, "hello")
    same(properties.content_type, "application/octet-stream")
    same([delivery.routing_key, delivery.exchange, delivery.redelivered?], [queue.name, "", false])
  end

  def properties_and_headers_arrive_whole(connection)
    channel = connection.create_channel
    queue = channel.queue("", exclusive: true)
    headers = {
      "text" => "grüße", "number" => -5, "big" => 2**40, "double" => 0.25, "yes" => true, "no" => false, "nothing" => nil,
      "when" => Time.at(1_700_000_000), "decimal" => BigDecimal("12"), "list" => ["one", 2.0, 3, [{"in" => 4}]],
      "table" => {"deep" => {"deeper" => "x"}}
    }
    properties = {
      content_type: "application/json", content_encoding: "gzip", priority: 3, correlation_id: "c", reply_to: "r",
      expiration: "60000", message_id: "m", timestamp: 1_700_000_001, type: "t", user_id: connection.user, app_id: "a"
    }
    queue.publish("x", headers: headers.merge("single" => AMQ::Protocol::Float32Bit.new(1.5)), persistent: true, **properties)
    _, found, = next_of(consume(queue)[0])
    same(found.headers.map { |name, value| [name, value.is_a?(String) ? value.dup.force_encoding("UTF-8") : value] }.to_h,
         headers.merge("single" => 1.5))
    properties.each { |name, value| same(name == :timestamp ? found[name].to_i : found[name], value, name) }
    same(found.delivery_mode, 2)
  end

  def exchanges_of_every_type_route(connection)
    channel = connection.create_channel
    [
      [:direct, {routing_key: "k"}, {routing_key: "k"}],
      [:fanout, {}, {routing_key: "anything"}],
      [:topic, {routing_key: "a.*.#"}, {routing_key: "a.b.c.d"}],
      [:headers, {arguments: {"x-match" => "all", "color" => "red"}}, {headers: {"color" => "red", "more" => 1}}]
    ].each do |type, binding, message|
      exchange = channel.exchange(unique(type), type: type, auto_delete: true)
      inbox, = consume(channel.queue("", exclusive: true).bind(exchange, **binding))
      exchange.publish(type.to_s, **message)
      same(bodies(inbox, 1), [type.to_s])
    end
  end

  def exchanges_can_be_bound_to_exchanges(connection)
    channel = connection.create_channel
    channel.confirm_select
    source = channel.fanout(unique("source"), auto_delete: true)
    target = channel.fanout(unique("target"))
    queue = channel.queue("", exclusive: true).bind(target)
    target.bind(source)
    publish(source, "through", "")
    same(queue.pop[2], "through")
    target.unbind(source)
    same(connection.exchange_exists?(source.name), false, "an exchange that goes with its last binding")
    target.delete
  end

  def confirms_answer_every_message(connection)
    channel = connection.create_channel
    queue = channel.queue(unique("confirmed"), durable: true)
    answered = Queue.new
    channel.confirm_select(->(number, _multiple, is_refused) { answered << [number, is_refused] })
    # Bunny 2.19 looks through its open numbers without its lock: its answers wait until nothing is added any more
    all_sent = Queue.new
    channel.define_singleton_method(:handle_ack_or_nack) do |*answer|
      all_sent.pop
      super(*answer)
    end
    500.times { |number| queue.publish(number.to_s, persistent: true) }
    all_sent.close
    same(channel.wait_for_confirms, true)
    same(queue.message_count, 500)
    same(Array.new(500) { next_of(answered) }.sort, (1..500).map { |number| [number, false] })
    same(queue.delete.message_count, 500)
  end

  def a_refused_message_is_told(connection)
    channel = connection.create_channel
    channel.confirm_select
    queue = channel.queue("", exclusive: true, arguments: {"x-max-length" => 1, "x-overflow" => "reject-publish"})
    queue.publish("fits")
    same(channel.wait_for_confirms, true)
    queue.publish("too much")
    same(channel.wait_for_confirms, false)
    same(channel.nacked_set.to_a, [2])
  end

  def an_unroutable_message_comes_back(connection)
    channel = connection.create_channel
    exchange = channel.direct("amq.direct")
    returned = Queue.new
    exchange.on_return { |*answer| returned << answer }
    exchange.publish("back", routing_key: unique("nobody"), mandatory: true, message_id: "m")
    answer, properties, body = next_of(returned)
    same([answer.reply_code, answer.reply_text, body, properties.message_id], [312, "NO_ROUTE", "back", "m"])
  end

  def prefetch_and_acknowledgements_pace_a_consumer(connection)
    channel = connection.create_channel
    channel.prefetch(3)
    queue = channel.queue("", exclusive: true)
    20.times { |number| queue.publish(number.to_s) }
    inbox, = consume(queue, manual_ack: true)
    found = []
    until found.size == 20
      delivery, _, body = next_of(inbox)
      raise "more than it asked for" if inbox.size > 2
      found << body
      channel.ack(delivery.delivery_tag)
    end
    same(found, (0...20).map(&:to_s))
    same(queue.message_count, 0)
  end

  def a_rejected_message_comes_again_or_is_dropped(connection)
    channel = connection.create_channel
    queue = channel.queue("", exclusive: true)
    %w[a b].each { |body| queue.publish(body) }
    inbox, consumer = consume(queue, manual_ack: true)
    first, = next_of(inbox)
    same(bodies(inbox, 1), ["b"])
    channel.reject(first.delivery_tag, true)
    again, _, body = next_of(inbox)
    same([body, again.redelivered?], ["a", true])
    channel.reject(again.delivery_tag, false)
    consumer.cancel
    channel.recover
    same(queue.pop[2], "b")
    same(queue.pop, [nil, nil, nil])
  end

  def dead_letters_tell_why(connection)
    channel = connection.create_channel
    graves = channel.fanout(unique("graves"), auto_delete: true)
    letters, = consume(channel.queue("", exclusive: true).bind(graves))
    {"rejected" => {}, "expired" => {"x-message-ttl" => 30}, "maxlen" => {"x-max-length" => 1}}.each do |reason, arguments|
      queue = channel.queue("", exclusive: true, arguments: {"x-dead-letter-exchange" => graves.name, **arguments})
      queue.publish(reason)
      queue.publish("the next") if reason == "maxlen"
      channel.reject(queue.pop(manual_ack: true)[0].delivery_tag, false) if reason == "rejected"
      _, properties, body = next_of(letters)
      death = properties.headers["x-death"][0]
      same([body, death["reason"], death["queue"], death["count"]], [reason, reason, queue.name, 1])
    end
  end

  def transactions_are_all_or_nothing(connection)
    channel = connection.create_channel
    channel.tx_select
    queue = channel.queue("", exclusive: true)
    2.times { queue.publish("gone") }
    channel.tx_rollback
    2.times { queue.publish("kept") }
    same(queue.message_count, 0)
    channel.tx_commit
    same(queue.message_count, 2)
    delivery, _, body = queue.pop(manual_ack: true)
    same(body, "kept")
    channel.ack(delivery.delivery_tag)
    channel.tx_rollback
    channel.close
    same(connection.create_channel.queue_declare(queue.name, passive: true).message_count, 2)
  end

  def a_cancelled_consumer_is_told(connection)
    channel = connection.create_channel
    queue = channel.queue(unique("cancelled"))
    told = Queue.new
    queue.subscribe(on_cancellation: ->(_) { told << true }) { |*| nil }
    connection.create_channel.queue_delete(queue.name)
    next_of(told)
  end

  def a_closed_channel_tells_why_and_others_go_on(connection)
    channel = connection.create_channel
    missing = unique("missing")
    error = fails_with(Bunny::NotFound) { channel.queue(missing, passive: true) }
    same(error.message, "NOT_FOUND - no queue '#{missing}' in vhost '/'")
    same(channel.closed?, true)
    locked = connection.create_channel.queue(unique("mine"), exclusive: true)
    other = Bunny.new(URL, log_level: :fatal).start
    fails_with(Bunny::ResourceLocked) { other.create_channel.queue(locked.name, exclusive: true) }
    fails_with(Bunny::PreconditionFailed) { connection.create_channel.queue_declare(locked.name, exclusive: true, auto_delete: true) }
    fails_with(Bunny::AccessRefused) { connection.create_channel.direct("amq.mine") }
    other.close
  end

  def counts_hold_right_after_a_burst(connection)
    channel = connection.create_channel
    queue = channel.queue("", exclusive: true, arguments: {"x-max-length" => 10})
    5.times do
      100.times { queue.publish("x") }
      raise "more than the limit" if queue.message_count > 10
    end
  end

  def a_large_message_arrives_whole(connection)
    channel = connection.create_channel
    queue = channel.queue("", exclusive: true)
    body = "0123456789" * 300_000
    inbox, = consume(queue)
    queue.publish(body)
    same(next_of(inbox)[2] == body, true, "whole")
  end

  def streams_are_read_from_an_offset(connection)
    channel = connection.create_channel
    channel.confirm_select
    stream = channel.queue(unique("stream"), durable: true, arguments: {"x-queue-type" => "stream"})
    5.times { |number| publish(channel.default_exchange, number.to_s, stream.name) }
    channel.prefetch(10)
    inbox, = consume(stream, manual_ack: true, arguments: {"x-stream-offset" => 2})
    same(bodies(inbox, 3), %w[2 3 4])
    stream.delete
  end
end

# Everything a recovering client has, and a line on standard output when it waits for the broker to go and come back.
def recover
  came_back = Queue.new
  connection = Bunny.new(URL, network_recovery_interval: 0.2, recovery_completed: -> { came_back << true }, log_level: :fatal).start
  channel = connection.create_channel
  channel.confirm_select
  channel.prefetch(1)
  source = channel.topic(unique("source"), durable: true)
  target = channel.fanout(unique("target"), auto_delete: true).bind(source, routing_key: "order.#")
  kept = channel.queue(unique("kept"), durable: true).bind(source, routing_key: "order.paid")
  mine = channel.queue("", exclusive: true).bind(target)
  inbox, = consume(mine, manual_ack: true)
  publish(source, "before", "order.paid", persistent: true)
  channel.ack(next_of(inbox)[0].delivery_tag)
  before = mine.name
  $stdout.puts("ready")
  $stdout.flush
  next_of(came_back)
  raise "a name of another life" if mine.name == before
  publish(source, "after", "order.paid", persistent: true)
  delivery, _, body = next_of(inbox)
  same(body, "after")
  channel.ack(delivery.delivery_tag)
  same([kept.pop[2], kept.pop[2], kept.pop[2]], ["before", "after", nil])
  same(connection.create_channel.queue_declare(mine.name, passive: true).consumer_count, 1)
  [kept, source].each(&:delete)
  connection.close
end

# Over TLS, known by a certificate: its user is who the certificate names.
def speak_tls(ca_file, cert_file, key_file)
  connection = Bunny.new(
    URL, auth_mechanism: "EXTERNAL", verify_peer: true, tls_ca_certificates: [ca_file], tls_cert: cert_file, tls_key: key_file,
    automatically_recover: false, log_level: :fatal
  ).start
  queue = connection.create_channel.queue("", exclusive: true)
  body = "x" * 300_000
  queue.publish(body, user_id: "alice")
  same(next_of(consume(queue)[0])[2] == body, true, "whole")
  connection.close
end

URL, claim, *files = ARGV
case claim
when "recover" then recover
when "speak_tls" then speak_tls(*files)
else
  connection = Bunny.new(URL, automatically_recover: false, log_level: :fatal).start
  Claims.public_send(claim, connection)
  connection.close
end
