"""Writes the messages of a recording into an MCAP file, as they are requested on standard input.

usage: writer.py RECORDING OUTPUT
"""

import sys

from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer

with open(sys.argv[1], "rb") as recording:
    reader = make_reader(recording)
    messages = list(reader.iter_messages(log_time_order=False))

with open(sys.argv[2], "wb") as output:
    # A chunk is written as soon as it has this many bytes.
    writer = Writer(output, chunk_size=1, compression=CompressionType.LZ4)
    writer.start()
    channels = {}
    print("ready", flush=True)
    for line in sys.stdin:
        schema, channel, message = messages[int(line)]
        if channel.id not in channels:
            schema_id = writer.register_schema(schema.name, schema.encoding, schema.data)
            channels[channel.id] = writer.register_channel(
                channel.topic, channel.message_encoding, schema_id
            )
        writer.add_message(
            channels[channel.id],
            log_time=message.log_time,
            publish_time=message.publish_time,
            data=message.data,
        )
        output.flush()
