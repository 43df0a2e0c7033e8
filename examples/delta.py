"""Write a Delta Lake table, query it with delta-rs, append to it, and train from it.

    python examples/delta.py PATH

PATH is any dataset. The table can also be at s3://...; Spark, Polars and DuckDB read it like any
other Delta Lake table.
"""

import argparse
import os
import tempfile

import deltalake
import pyarrow.compute as pc

import robocache


def main(path):
    with tempfile.TemporaryDirectory() as folder:
        table = os.path.join(folder, "lake")
        robocache.convert(path, table, to="delta", write_option=["partition=task"])
        # The same episodes again, as the next version of the table.
        robocache.convert(path, table, to="delta", write_option=["append=true"])

        lake = deltalake.DeltaTable(table)
        rows = lake.to_pyarrow_table(columns=["episode_index", "frame_index", "task"])
        print(
            f"version {lake.version()}: {rows.num_rows} rows of "
            f"{pc.count_distinct(rows['episode_index']).as_py()} episodes, "
            f"by {lake.metadata().partition_columns}"
        )

        loader = robocache.Loader(table, batch_size=16, seed=7)
        print(
            f"trained on {sum(len(batch['action']) for batch in loader)} rows "
            f"of version {robocache.open(table).version}, and there are "
            f"{robocache.open(table, options={'version': '0'}).num_frames} in version 0"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path")
    main(parser.parse_args().path)
