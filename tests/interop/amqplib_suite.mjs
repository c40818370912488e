// What services in Node.js do with amqplib, one function per claim: node amqplib_suite.mjs URL CLAIM
// Ends with code 0 when the claim holds; else the error stands on standard error.

import assert from "node:assert/strict";
import { once } from "node:events";
import amqp from "amqplib";

const [url, claim] = process.argv.slice(2);
const unique = (name) => `${name}-node-${process.pid}-${Math.random().toString(36).slice(2)}`;

// The next `count` messages of a queue, through a consumer.
const take = async (channel, queue, count, options = { noAck: true }) => {
  const found = [];
  let tag;
  await new Promise((resolve, reject) => {
    channel
      .consume(
        queue,
        (message) => {
          found.push(message);
          if (found.length === count) resolve();
        },
        options,
      )
      .then((answer) => (tag = answer.consumerTag), reject);
  });
  await channel.cancel(tag);
  return found;
};

const texts = (messages) => messages.map((message) => message.content.toString());

const claims = {
  async a_message_goes_round(connection) {
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue("", { exclusive: true });
    channel.sendToQueue(queue, Buffer.from("hello"));
    assert.deepEqual(texts(await take(channel, queue, 1)), ["hello"]);
  },

  async properties_and_headers_arrive_whole(connection) {
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue("", { exclusive: true });
    const options = {
      contentType: "application/json",
      contentEncoding: "gzip",
      headers: { text: "grüße", int: -5, big: 2 ** 40, double: 0.25, yes: true, nothing: null, list: [1, "b"], in: { x: 1 } },
      persistent: true,
      priority: 3,
      correlationId: "c",
      replyTo: "r",
      expiration: "60000",
      messageId: "m",
      timestamp: 1_700_000_000,
      type: "t",
      appId: "a",
    };
    channel.sendToQueue(queue, Buffer.from("x"), options);
    const [{ properties, fields }] = await take(channel, queue, 1);
    assert.deepEqual({ ...properties.headers }, options.headers);
    for (const name of ["contentType", "contentEncoding", "priority", "correlationId", "replyTo", "messageId", "timestamp", "type", "appId", "expiration"])
      assert.equal(properties[name], options[name], name);
    assert.equal(properties.deliveryMode, 2);
    assert.equal(fields.routingKey, queue);
    assert.equal(fields.redelivered, false);
  },

  async exchanges_of_every_type_route(connection) {
    const channel = await connection.createChannel();
    for (const [type, pattern, key, bindArguments, headers] of [
      ["direct", "k", "k", {}, {}],
      ["fanout", "", "anything", {}, {}],
      ["topic", "a.*.#", "a.b.c.d", {}, {}],
      ["headers", "", "", { "x-match": "all", color: "red" }, { color: "red", more: 1 }],
    ]) {
      const { exchange } = await channel.assertExchange(unique(type), type, { autoDelete: true });
      const { queue } = await channel.assertQueue("", { exclusive: true });
      await channel.bindQueue(queue, exchange, pattern, bindArguments);
      channel.publish(exchange, key, Buffer.from(type), { headers });
      assert.deepEqual(texts(await take(channel, queue, 1)), [type]);
    }
  },

  async exchanges_can_be_bound_to_exchanges(connection) {
    const channel = await connection.createChannel();
    const { exchange: source } = await channel.assertExchange(unique("s"), "fanout", { autoDelete: true });
    const { exchange: target } = await channel.assertExchange(unique("t"), "fanout", { autoDelete: true });
    const { queue } = await channel.assertQueue("", { exclusive: true });
    await channel.bindExchange(target, source, "");
    await channel.bindQueue(queue, target, "");
    channel.publish(source, "", Buffer.from("through"));
    assert.deepEqual(texts(await take(channel, queue, 1)), ["through"]);
    await channel.unbindExchange(target, source, "");
  },

  async confirms_answer_every_message(connection) {
    const channel = await connection.createConfirmChannel();
    const { queue } = await channel.assertQueue(unique("q"), { durable: true });
    let confirmed = 0;
    for (let number = 0; number < 500; number += 1)
      channel.sendToQueue(queue, Buffer.from(`${number}`), { persistent: true }, (error) => {
        assert.equal(error, null);
        confirmed += 1;
      });
    await channel.waitForConfirms();
    assert.equal(confirmed, 500);
    assert.equal((await channel.checkQueue(queue)).messageCount, 500);
    assert.equal((await channel.deleteQueue(queue)).messageCount, 500);
  },

  async a_refused_message_is_an_error(connection) {
    const channel = await connection.createConfirmChannel();
    const { queue } = await channel.assertQueue("", { exclusive: true, maxLength: 1, arguments: { "x-overflow": "reject-publish" } });
    channel.sendToQueue(queue, Buffer.from("fits"));
    await channel.waitForConfirms();
    channel.sendToQueue(queue, Buffer.from("too much"));
    await assert.rejects(channel.waitForConfirms(), /nacked/);
  },

  async an_unroutable_message_comes_back(connection) {
    const channel = await connection.createChannel();
    const returned = once(channel, "return");
    channel.publish("amq.direct", unique("nobody"), Buffer.from("back"), { mandatory: true });
    const [message] = await returned;
    assert.equal(message.content.toString(), "back");
    assert.equal(message.fields.replyCode, 312);
  },

  async prefetch_and_acknowledgements_pace_a_consumer(connection) {
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue("", { exclusive: true });
    for (let number = 0; number < 20; number += 1) channel.sendToQueue(queue, Buffer.from(`${number}`));
    await channel.prefetch(3);
    let open = 0;
    const order = [];
    await new Promise((resolve) => {
      channel.consume(queue, (message) => {
        open += 1;
        assert.ok(open <= 3);
        order.push(Number(message.content));
        setImmediate(() => {
          open -= 1;
          channel.ack(message);
          if (Number(message.content) === 19) resolve();
        });
      });
    });
    assert.deepEqual(order, [...Array(20).keys()]);
  },

  async nack_puts_back_and_reject_drops(connection) {
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue("", { exclusive: true });
    for (const text of ["a", "b"]) channel.sendToQueue(queue, Buffer.from(text));
    await channel.checkExchange("amq.direct");
    channel.nack(await channel.get(queue));
    const again = await channel.get(queue);
    assert.equal(again.content.toString(), "a");
    assert.equal(again.fields.redelivered, true);
    channel.reject(again, false);
    assert.equal((await channel.get(queue)).content.toString(), "b");
    assert.equal(await channel.get(queue), false);
    await channel.recover();
    assert.equal((await channel.get(queue)).content.toString(), "b");
  },

  async expired_messages_become_dead_letters(connection) {
    const channel = await connection.createChannel();
    const letters = await channel.assertQueue("", { exclusive: true });
    const { queue } = await channel.assertQueue("", {
      exclusive: true,
      messageTtl: 30,
      deadLetterExchange: "",
      deadLetterRoutingKey: letters.queue,
    });
    channel.sendToQueue(queue, Buffer.from("late"));
    const [letter] = await take(channel, letters.queue, 1);
    assert.equal(letter.properties.headers["x-death"][0].reason, "expired");
    assert.equal(letter.properties.headers["x-death"][0].queue, queue);
  },

  async a_closed_channel_tells_why(connection) {
    const channel = await connection.createChannel();
    const failed = once(channel, "error");
    await assert.rejects(channel.checkQueue(unique("missing")), /404/);
    const [error] = await failed;
    assert.equal(error.code, 404);
    const second = await connection.createChannel();
    await second.assertQueue("", { exclusive: true });
  },

  async a_cancelled_consumer_is_told(connection) {
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue(unique("q"), { durable: false });
    const told = new Promise((resolve) => channel.consume(queue, (message) => message === null && resolve()));
    const other = await connection.createChannel();
    await channel.checkQueue(queue);
    await other.deleteQueue(queue);
    await told;
  },

  async answers_come_by_direct_reply_to(connection) {
    const server = await connection.createChannel();
    const { queue } = await server.assertQueue("", { exclusive: true });
    await server.consume(queue, (message) => server.sendToQueue(message.properties.replyTo, message.content, { correlationId: message.properties.correlationId }), { noAck: true });
    const asker = await connection.createChannel();
    const answered = new Promise((resolve) => asker.consume("amq.rabbitmq.reply-to", resolve, { noAck: true }));
    await asker.checkExchange("amq.direct");
    asker.sendToQueue(queue, Buffer.from("ping"), { replyTo: "amq.rabbitmq.reply-to", correlationId: "7" });
    const answer = await answered;
    assert.equal(answer.content.toString(), "ping");
    assert.equal(answer.properties.correlationId, "7");
  },

  async a_large_message_arrives_whole(connection) {
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue("", { exclusive: true });
    const body = Buffer.alloc(3_000_000, "0123456789");
    channel.sendToQueue(queue, body);
    const [message] = await take(channel, queue, 1);
    assert.ok(body.equals(message.content));
  },

  async streams_are_read_from_an_offset(connection) {
    const channel = await connection.createConfirmChannel();
    const { queue } = await channel.assertQueue(unique("stream"), { durable: true, arguments: { "x-queue-type": "stream" } });
    for (let number = 0; number < 5; number += 1) channel.sendToQueue(queue, Buffer.from(`${number}`));
    await channel.waitForConfirms();
    await channel.prefetch(10);
    const found = await take(channel, queue, 3, { arguments: { "x-stream-offset": 2 } });
    assert.deepEqual(texts(found), ["2", "3", "4"]);
    await channel.deleteQueue(queue);
  },
};

if (url === "--list") {
  process.stdout.write(Object.keys(claims).join("\n"));
} else {
  const connection = await amqp.connect(url);
  await claims[claim](connection);
  await connection.close();
}
