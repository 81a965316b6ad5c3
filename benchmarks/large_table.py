"""Time and memory of `anyloss fit` and `anyloss predict` on a large CSV or Parquet file.

    python benchmarks/large_table.py                    # a million rows, 30 columns, linear
    python benchmarks/large_table.py --rows 100000 --model lightgbm
    python benchmarks/large_table.py --parquet --rows 10000000 --columns 50    # streamed

Writes a table of numbers, counts, text, booleans and missing values with 6 % positives to a
temporary folder, runs each command on it in its own process, and prints the wall time, the
processor time and the peak of the resident memory.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

PART = 100_000


def parts(rows: int, columns: int) -> Iterator[pd.DataFrame]:
    """Parts of a table with so many columns and a label; the numbers have five decimals."""
    rng = np.random.default_rng(0)
    for start in range(0, rows, PART):
        n = min(PART, rows - start)
        x = rng.normal(size=(n, columns - 4)).round(5)
        city, plan = rng.integers(0, 5, n), rng.integers(0, 12, n)
        z = x[:, :6] @ [1, -0.8, 0.6, 0.5, -0.4, 0.3] + 0.8 * x[:, 6] * x[:, 7] + (city == 1) / 2
        frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(columns - 4)])
        frame.loc[rng.random(n) < 0.05, "x3"] = np.nan
        frame["city"] = np.array(["Rome", "Oslo", "Lima", "Quito", "Paris"])[city]
        frame["plan"] = np.char.add("plan ", plan.astype(str))
        frame["visits"], frame["member"] = rng.poisson(3, n), rng.random(n) < 0.5
        frame["churn"] = np.where(rng.random(n) < 1 / (1 + np.exp(4 - z)), "yes", "no")
        yield frame


def write(path: Path, rows: int, columns: int) -> None:
    """Write the table to a CSV file, or to a Parquet file with a row group for each part."""
    if path.suffix == ".csv":
        for k, frame in enumerate(parts(rows, columns)):
            frame.to_csv(path, index=False, mode="a" if k else "w", header=not k)
        return
    writer = None
    for frame in parts(rows, columns):
        table = pa.Table.from_pandas(frame, preserve_index=False)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def measured(*words: str) -> None:
    start = time.perf_counter()
    process = os.posix_spawn(sys.executable, [sys.executable, "-m", "anyloss", *words], os.environ)
    _, status, used = os.wait4(process, 0)
    seconds = time.perf_counter() - start
    if status:
        sys.exit(f"anyloss {words[0]} failed")
    print(
        f"anyloss {words[0]}: wall time {seconds:.0f} s, processor time "
        f"{used.ru_utime + used.ru_stime:.0f} s, peak memory {used.ru_maxrss / 1024:.0f} MB\n",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=30)
    parser.add_argument("--parquet", action="store_true")
    parser.add_argument("--model", default="linear")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/large.{'parquet' if given.parquet else 'csv'}"
        model = f"{folder}/model"
        write(Path(data), given.rows, given.columns)
        size = Path(data).stat().st_size / 1e6
        print(f"{given.rows} rows, {given.columns} columns, {size:.0f} MB", flush=True)
        measured("fit", data, "--target", "churn", "--model", given.model, "--out", model)
        measured("predict", model, data, "--out", f"{folder}/predictions.csv")


if __name__ == "__main__":
    main()
