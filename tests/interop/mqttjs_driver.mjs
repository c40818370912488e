// Drives MQTT.js for the tests: one command per line on standard input, one answer or event per line on
// standard output, all JSON, binary values in base64. It ends when its input ends.

import { createHash, createHmac, pbkdf2Sync, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import mqtt from "mqtt";

const clients = new Map();

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const bytes = (text) => Buffer.from(text, "base64");

const toProperties = (given) => {
  if (given === null) return undefined;
  const made = {};
  if (given.content_type !== null) made.contentType = given.content_type;
  if (given.response_topic !== null) made.responseTopic = given.response_topic;
  if (given.correlation_data !== null) made.correlationData = bytes(given.correlation_data);
  if (given.expiry_s !== null) made.messageExpiryInterval = given.expiry_s;
  if (given.is_text !== null) made.payloadFormatIndicator = given.is_text;
  if (given.topic_alias !== null) made.topicAlias = given.topic_alias;
  // An object loses the order between different names; equal names keep theirs in a list.
  for (const [name, value] of given.user) {
    made.userProperties ??= {};
    if (name in made.userProperties) made.userProperties[name] = [made.userProperties[name], value].flat();
    else made.userProperties[name] = value;
  }
  return made;
};

const fromProperties = (found = {}) => ({
  content_type: found.contentType ?? null,
  response_topic: found.responseTopic ?? null,
  correlation_data: found.correlationData?.toString("base64") ?? null,
  expiry_s: found.messageExpiryInterval ?? null,
  is_text: found.payloadFormatIndicator ?? null,
  user: Object.entries(found.userProperties ?? {}).flatMap(([name, values]) =>
    [values].flat().map((value) => [name, value]),
  ),
  subscription_ids: [found.subscriptionIdentifier ?? []].flat(),
});

// RFC 5802 with SHA-256: MQTT.js carries the exchange and leaves its contents to the application.
class Scram {
  constructor(username, password) {
    this.password = password;
    this.bare = `n=${username},r=${randomBytes(18).toString("base64")}`;
    this.first = Buffer.from(`n,,${this.bare}`);
  }

  answer(serverFirst) {
    const fields = Object.fromEntries(
      serverFirst.split(",").map((part) => [part[0], part.slice(2)]),
    );
    const salted = pbkdf2Sync(this.password, bytes(fields.s), Number(fields.i), 32, "sha256");
    const hmac = (key, text) => createHmac("sha256", key).update(text).digest();
    const clientKey = hmac(salted, "Client Key");
    const storedKey = createHash("sha256").update(clientKey).digest();
    const withoutProof = `c=biws,r=${fields.r}`;
    const all = `${this.bare},${serverFirst},${withoutProof}`;
    const signature = hmac(storedKey, all);
    const proof = Buffer.from(clientKey.map((byte, index) => byte ^ signature[index]));
    this.expected = `v=${hmac(hmac(salted, "Server Key"), all).toString("base64")}`;
    return Buffer.from(`${withoutProof},p=${proof.toString("base64")}`);
  }
}

const connectOptions = (command, scram) => {
  const options = {
    clientId: command.client_id,
    protocolVersion: command.version,
    clean: command.clean,
    keepalive: command.keep_alive_s,
    reconnectPeriod: 0,
    connectTimeout: 20_000,
    username: command.username ?? undefined,
    password: command.password ?? undefined,
    ca: command.ca_file ? readFileSync(command.ca_file) : undefined,
    cert: command.cert_file ? readFileSync(command.cert_file) : undefined,
    key: command.key_file ? readFileSync(command.key_file) : undefined,
  };
  if (command.version === 5) {
    options.properties = {};
    if (command.session_expiry_s !== null) options.properties.sessionExpiryInterval = command.session_expiry_s;
    if (command.topic_alias_max) {
      options.properties.topicAliasMaximum = command.topic_alias_max;
      options.autoAssignTopicAlias = true;
    }
    if (scram) {
      options.properties.authenticationMethod = "SCRAM-SHA-256";
      options.properties.authenticationData = scram.first;
    }
  }
  if (command.will) {
    const properties = command.version === 5 ? toProperties(command.will.properties) : undefined;
    options.will = { ...command.will, payload: bytes(command.will.payload), properties };
  }
  return options;
};

const actions = {
  connect(command, resolve, reject) {
    const scram = command.scram ? new Scram(command.scram.username, command.scram.password) : null;
    const client = mqtt.connect(command.url, connectOptions(command, scram));
    clients.set(command.client, client);
    const tell = (event, rest = {}) => say({ client: command.client, event, ...rest });
    if (scram) {
      client.handleAuth = (packet, callback) =>
        callback(null, {
          cmd: "auth",
          reasonCode: 0x18,
          properties: {
            authenticationMethod: "SCRAM-SHA-256",
            authenticationData: scram.answer(packet.properties.authenticationData.toString()),
          },
        });
    }
    client.on("connect", (connack) => {
      const proof = connack.properties?.authenticationData?.toString() ?? null;
      resolve({ session_present: connack.sessionPresent, is_server_proven: proof === (scram?.expected ?? null) });
    });
    client.on("error", reject);
    client.on("message", (topic, payload, packet) =>
      tell("message", {
        topic,
        payload: payload.toString("base64"),
        qos: packet.qos,
        retain: packet.retain,
        properties: fromProperties(packet.properties),
        alias: packet.properties?.topicAlias ?? null,
      }),
    );
    client.on("packetreceive", (packet) => packet.cmd === "pingresp" && tell("ping"));
    client.on("disconnect", (packet) => tell("disconnect", { code: packet.reasonCode }));
    client.on("close", () => {
      tell("closed");
      reject(new Error("closed before CONNACK"));
    });
  },

  subscribe(command, resolve, reject) {
    const options = { qos: command.qos };
    if (command.is_5) {
      Object.assign(options, { nl: command.no_local, rap: command.retain_as_published, rh: command.retain_handling });
      if (command.identifier !== null) options.properties = { subscriptionIdentifier: command.identifier };
    }
    clients.get(command.client).subscribe(command.filter, options, (error, granted, packet) => {
      const code = packet?.granted?.[0] ?? granted?.[0]?.qos;
      if (code === undefined) reject(error);
      else resolve({ code: typeof code === "object" ? code.qos : code });
    });
  },

  unsubscribe(command, resolve, reject) {
    clients.get(command.client).unsubscribe(command.filter, (error) => (error ? reject(error) : resolve({})));
  },

  publish(command, resolve, reject) {
    const client = clients.get(command.client);
    const options = { qos: command.qos, retain: command.retain, properties: toProperties(command.properties) };
    const confirmed = command.payloads.map(
      (payload) =>
        new Promise((done, fail) =>
          client.publish(command.topic, bytes(payload), options, (error, packet) => {
            if (error && error.code === undefined) fail(error);
            else done(error ? error.code : (packet?.reasonCode ?? 0));
          }),
        ),
    );
    Promise.all(confirmed).then((codes) => resolve({ codes }), reject);
  },

  disconnect(command, resolve) {
    clients.get(command.client).end(false, {}, () => resolve({}));
  },

  cut(command, resolve) {
    clients.get(command.client).stream.destroy();
    resolve({});
  },

  fall_silent(command, resolve) {
    clients.get(command.client).sendPing = () => {};
    resolve({});
  },
};

createInterface({ input: process.stdin }).on("line", (line) => {
  const command = JSON.parse(line);
  const resolve = (answer) => say({ number: command.number, answer });
  const reject = (error) =>
    say({ number: command.number, error: { code: error?.code ?? null, text: String(error?.message ?? error) } });
  try {
    actions[command.action](command, resolve, reject);
  } catch (error) {
    reject(error);
  }
}).on("close", () => process.exit(0));
