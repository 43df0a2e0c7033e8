"""One table of rows for the lake and for training: write it, query it by delta-rs, add to it, train on it.

    python examples/delta.py PATH

PATH is any dataset. The table may as well lie at s3://…; Spark, Polars and DuckDB read it like any other Delta Lake table."""

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
        # the same episodes again, as the table's next version
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
            f"trained on {sum(len(batch['action']) for batch in loader)} rows of version {robocache.open(table).version}, "
            f"and there are {robocache.open(table, options={'version': '0'}).num_frames} in version 0"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path")
    main(parser.parse_args().path)
