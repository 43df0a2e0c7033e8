// Reads a written MCAP file with @mcap/core (by its index, check sums compared), parses every schema with @foxglove/rosmsg and decodes every
// message with @foxglove/rosmsg2-serialization. A line a message: topic, log time, publish time, sequence, header stamp (or -), SHA-256 of its value.
// usage: node reference.mjs PACKAGES FILE, where PACKAGES is a folder with node_modules
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";

const [packages, file] = process.argv.slice(2);
const require = createRequire(path.join(path.resolve(packages), "reference.js"));
const { McapIndexedReader } = require("@mcap/core");
const { parse } = require("@foxglove/rosmsg");
const { MessageReader } = require("@foxglove/rosmsg2-serialization");
const { decompress } = require("fzstd");

const bytes = await readFile(file);
const reader = await McapIndexedReader.Initialize({
  readable: {
    size: async () => BigInt(bytes.length),
    read: async (offset, size) => new Uint8Array(bytes.buffer, bytes.byteOffset + Number(offset), Number(size)),
  },
  decompressHandlers: { zstd: (buffer, size) => decompress(buffer, new Uint8Array(Number(size))) },
});
if (reader.header.profile !== "ros2") throw new Error(`profile ${reader.header.profile}`);
const decoders = new Map();
for (const channel of reader.channelsById.values()) {
  const schema = reader.schemasById.get(channel.schemaId);
  if (schema?.encoding !== "ros2msg" || channel.messageEncoding !== "cdr") throw new Error(`${channel.topic}: ${schema?.encoding}, ${channel.messageEncoding}`);
  decoders.set(channel.id, new MessageReader(parse(new TextDecoder().decode(schema.data), { ros2: true })));
}
const raw = (v) => (typeof v === "string" ? Buffer.from(v) : Buffer.from(v.buffer, v.byteOffset, v.byteLength));
let count = 0n;
const out = [];
for await (const m of reader.readMessages()) {
  const value = decoders.get(m.channelId).readMessage(m.data);
  const stamp = value.header ? BigInt(value.header.stamp.sec) * 1000000000n + BigInt(value.header.stamp.nanosec) : "-";
  out.push([reader.channelsById.get(m.channelId).topic, m.logTime, m.publishTime, m.sequence, stamp, createHash("sha256").update(raw(value.data)).digest("hex")].join("\t"));
  count++;
}
if (count !== reader.statistics.messageCount) throw new Error(`${count} messages, the statistics say ${reader.statistics.messageCount}`);
for await (const m of reader.readMetadata()) out.push(["metadata", m.name, m.metadata.size].join("\t"));
console.log(out.join("\n"));
