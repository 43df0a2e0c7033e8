"""Publishes the messages of a recording with the Foxglove SDK, as requested on standard input.

usage: server.py RECORDING PORT [CERTIFICATE KEY]
"""

import sys
from pathlib import Path

import foxglove
from mcap.reader import make_reader

with open(sys.argv[1], "rb") as recording:
    reader = make_reader(recording)
    messages = list(reader.iter_messages(log_time_order=False))

tls = {}
if len(sys.argv) > 3:
    tls["tls_cert"] = Path(sys.argv[3]).read_bytes()
    tls["tls_key"] = Path(sys.argv[4]).read_bytes()
server = foxglove.start_server(
    host="127.0.0.1",
    port=int(sys.argv[2]),
    # The server drops the oldest message above this number.
    message_backlog_size=100_000,
    capabilities=[foxglove.Capability.Time],
    **tls,
)
channels = {}
for schema, channel, _ in messages:
    if channel.id not in channels:
        channels[channel.id] = foxglove.Channel(
            channel.topic,
            message_encoding=channel.message_encoding,
            schema=foxglove.Schema(name=schema.name, encoding=schema.encoding, data=schema.data),
        )
print("ready", flush=True)
for line in sys.stdin:
    _, channel, message = messages[int(line)]
    server.broadcast_time(message.log_time)
    channels[channel.id].log(message.data, log_time=message.log_time)
