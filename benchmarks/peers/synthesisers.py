"""Other makers of synthetic tables: how each is installed and run, and at which epsilon it makes our promise.

Ours is for one record *replaced*, the number of records public: a table of counts then moves by 2 in L1 and sqrt 2 in
L2.

MST of dpmm and SmartNoise scales its noise for one record *added or removed*: rho/3 each for two rounds of Gaussian
tables that move by 1 in L2 and for choices whose scores move by 1. If a record is replaced, tables move by sqrt 2 and
scores by 2, and rho grows with the square: 2·rho/3 + 2·rho/3 + 4·rho/3 = 8/3 rho. So with 3/8 of its rho it makes our
promise.

AIM of dpmm, for one record added or removed as well: d of its 16·d rounds go to one-way tables, which cost .9 of a
round; each further round spends .9 on a Gaussian table that moves by 1 and .1 on a choice by scores that move by 1, and
keeps that proportion when it anneals. If a record is replaced, tables cost 2 and choices 4 times as much:
2·(.9/16 + .9·(1 - .9/16)) + 4·.1·(1 - .9/16) = 2.18875 rho. With its default of 1,000 steps of descent
in each round a run on Adult had bought 44 tables with .62 of its budget after 695 s of a processor, and had not ended
after 860; with 100, from where the last round ended, and 1,000 in the last fit, it takes two minutes. If its
processor time runs out before its budget, rows are drawn from the model it has by then.

PrivBayes of dpmm: epsilon/2 for choices, epsilon/2 for Gaussian tables that move by 1. Its choices are scaled
for mutual information in nats when a record is replaced; its score is that in bits over a mean of entropies, which one
record can move from 0 to 1. So no epsilon gives our promise; a smaller one gives it to the tables, if the choices are
taken at their word. DataSynthesizer: epsilon/2 for choices, for a record replaced; epsilon/2 for Laplace tables that
move by 1, so 3/2 epsilon for a record replaced. As run here it reads the categories off the rows, which no epsilon
covers. dpart: tables for a record replaced; choices scored in bits but scaled in nats, so up to 1/ln 2 times their
half; categories off the rows. It runs at the same number only. ``benchmarks/peers/peer_promises.py`` shows the scales
and scores in the peers' own code, but for SmartNoise, of which the source was read. Both MSTs convert rho to (epsilon,
delta) as we do, to the last digits.
"""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

DELTA = 1e-9
PEERS = {
    "DataSynthesizer": "datasynth",
    "dpart": "dpart",
    "dpmm PrivBayes": "dpmm",
    "dpmm MST": "dpmm",
    "dpmm AIM": "dpmm",
    "SmartNoise MST": "smartnoise",
}
PURE = ("DataSynthesizer", "dpart")  # promise epsilon without a delta, and stand beside ours that do
RECIPES = {  # arguments of pip, one list after the other
    "datasynth": [["DataSynthesizer==0.1.13"]],
    "dpart": [
        ["setuptools<70", "wheel"],
        ["numpy==1.26.4", "pandas==2.1.4", "scikit-learn==1.3.2", "diffprivlib==0.6.5", "networkx", "seaborn"],
        ["--no-deps", "--no-build-isolation", "dpart==0.1.2"],
    ],
    "dpmm": [["dpmm==0.1.9"]],
    "smartnoise": [
        ["mbi>=1.1,<2", "disjoint-set==0.9.0", "pandas<3", "opendp", "Faker", "smartnoise-sql"],
        ["--no-deps", "smartnoise-synth==1.0.8"],
    ],
}
SAME = "same promise"
TABLES = "tables at the same promise"  # where choices or categories have no promise that we could establish
SMALLER = {
    "dpmm MST": SAME,
    "dpmm AIM": SAME,
    "SmartNoise MST": SAME,
    "dpmm PrivBayes": TABLES,
    "DataSynthesizer": TABLES,
}


def smaller_epsilon(name, epsilon):
    """Return the epsilon at which a peer of SMALLER keeps, for a record replaced, what it is said to keep there."""
    from panstream.privacy.composition import zcdp_epsilon, zcdp_rho

    if name == "DataSynthesizer":
        return epsilon * 2 / 3
    if name.endswith("MST"):
        return zcdp_epsilon(zcdp_rho(epsilon, DELTA) * 3 / 8, DELTA)
    if name.endswith("AIM"):
        return zcdp_epsilon(zcdp_rho(epsilon, DELTA) / 2.18875, DELTA)
    low = 0.0
    high = epsilon
    for _ in range(50):
        half = (low + high) / 4
        kept = half + zcdp_epsilon(2 * zcdp_rho(half, DELTA), DELTA) <= epsilon
        low, high = (2 * half, high) if kept else (low, 2 * half)
    return low


def peer_main(name: str, train: str, out: str, epsilon: float, limit: float, aim_steps: int) -> None:
    """Run one peer on a table of integer codes; called in the peer's own environment, which has no panstream."""
    import json

    import pandas as pd

    frame = pd.read_csv(train)
    sizes = json.loads(Path(train).with_suffix(".json").read_text())
    if name == "DataSynthesizer":
        from DataSynthesizer.DataDescriber import DataDescriber
        from DataSynthesizer.DataGenerator import DataGenerator

        describer = DataDescriber(category_threshold=1000)
        kinds = dict.fromkeys(frame.columns, True)
        seed = int.from_bytes(os.urandom(4), "little")
        describer.describe_dataset_in_correlated_attribute_mode(
            dataset_file=train, epsilon=epsilon, k=1, attribute_to_is_categorical=kinds, seed=seed
        )
        describer.save_dataset_description_to_file(out + ".json")
        generator = DataGenerator()
        generator.generate_dataset_in_correlated_attribute_mode(len(frame), out + ".json", seed=seed + 1)
        generator.save_synthetic_data(out)
        return
    if name == "dpart":
        from dpart.engines import PrivBayes

        codes = frame.astype(str)
        bounds = {column: {"categories": [str(code) for code in range(sizes[column])]} for column in codes}
        model = PrivBayes(epsilon=epsilon, bounds=bounds, n_parents=1)
        model.fit(codes)
        model.sample(len(frame)).to_csv(out, index=False)
        return
    if name == "SmartNoise MST":
        from snsynth.mst.mst import MSTSynthesizer

        model = MSTSynthesizer(epsilon=epsilon, delta=DELTA)
        model.fit(frame, categorical_columns=list(frame.columns), preprocessor_eps=0.0)
        model.sample(len(frame)).to_csv(out, index=False)
        return
    if name == "dpmm AIM":
        run_aim(frame, sizes, out, epsilon, limit, aim_steps)
        return
    from dpmm.models.mst import MSTGM
    from dpmm.models.priv_bayes import PrivBayesGM

    chosen = MSTGM if name == "dpmm MST" else PrivBayesGM
    model = chosen(epsilon=epsilon, delta=DELTA, domain=sizes)
    model.fit(frame)
    model.generate(len(frame)).to_csv(out, index=False)


def run_aim(frame, sizes, out, epsilon, limit, steps):
    """Run AIM until its budget is spent, or until nine tenths of its processor time are: then with what it has."""
    import time

    from dpmm.models.aim import AIMGM
    from dpmm.models.base.mbi import FactoredInference

    class Stopped(Exception):
        pass

    model = AIMGM(epsilon=epsilon, delta=DELTA, domain=sizes, n_iters=steps, n_jobs=1)
    estimate = FactoredInference.estimate
    latest = []

    def watched(engine, measurements, *args, **options):
        engine.iters = steps if engine.warm_start else 1000  # the last fit starts anew
        found = estimate(engine, measurements, *args, **options)
        spent = sum(0.5 / sigma**2 for _, _, sigma, _ in measurements) / model.generator.rho
        latest[:] = [found]
        told = f"{'a round' if engine.warm_start else 'the last fit'}: "
        told += f"{len(measurements)} tables, {spent:.2f} of rho on them, {time.process_time():.0f} s"
        Path(out + ".progress").write_text(told)
        if time.process_time() > 0.9 * limit and spent < 0.8:
            raise Stopped
        return found

    FactoredInference.estimate = watched
    try:
        model.fit(frame)
        rows = model.generate(len(frame))
    except Stopped:
        rows = model.generator.compressor.reverse(latest[0].synthetic_data(rows=len(frame))).df
    rows.to_csv(out, index=False)


def install(folder, name):
    """Make a peer's environment; return what went wrong, or an empty text."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)
    for arguments in RECIPES[name]:
        command = [str(folder / name / "bin" / "pip"), "install", "-q", *arguments]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            lines = [line for line in result.stderr.splitlines() if "rror" in line]
            (folder / name / "bin" / "python").unlink()
            return lines[-1].strip() if lines else f"pip ended with {result.returncode}"
    return ""


def install_all(folder):
    """Make the environments that are missing, and say which cannot be made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in dict.fromkeys(PEERS.values()):
        if not (folder / name / "bin" / "python").exists():
            problem = install(folder, name)
            print(f"{name}: {'not installable here: ' + problem if problem else 'installed'}", flush=True)


def run_limited(command, folder, told, limit):
    """Run a command and all that it starts for so many seconds of processor time; return its code, None if it was
    stopped.
    """
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=told, cwd=folder, start_new_session=True, text=True
    )
    ticks = os.sysconf("SC_CLK_TCK")
    while True:
        try:
            return process.wait(1.0)
        except subprocess.TimeoutExpired:
            if session_ticks(process.pid) > limit * ticks:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return None


def session_ticks(session):
    """Return the processor time of all processes of a session, and of those that they have waited for."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15])) if int(fields[3]) == session else 0
    return total


def peer(name, epsilon, train, folder, limit, aim_steps=1000):
    """Return the peer's synthetic rows, or the reason why there are none."""
    import json

    import numpy as np

    from panstream.models.networks import Records

    python = folder / PEERS[name] / "bin" / "python"
    if not python.exists():
        return "not installed"
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "train.csv"
        out = Path(folder) / "out.csv"
        with table.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(train.domain.names)
            writer.writerows(train.codes.T.tolist())
        sizes = dict(zip(train.domain.names, train.domain.sizes, strict=True))
        table.with_suffix(".json").write_text(json.dumps(sizes))
        numbers = [str(number) for number in (epsilon, limit, aim_steps)]
        command = [str(python), __file__, "--peer", name, str(table), str(out), *numbers]
        with (Path(folder) / "told").open("w+") as told:
            code = run_limited(command, folder, told, limit)
            told.seek(0)
            lines = told.read().strip().splitlines()
        if code is None:
            return f"not finished in {limit} s of processor time"
        if code:
            return f"failed: {lines[-1] if lines else code}"
        with out.open(newline="") as file:
            reader = csv.DictReader(file)
            rows = [[int(float(row[name])) for name in train.domain.names] for row in reader]
    codes = np.array(rows).T
    return Records(train.domain, np.clip(codes, 0, np.array(train.domain.sizes)[:, None] - 1))


if __name__ == "__main__":
    peer_main(sys.argv[2], sys.argv[3], sys.argv[4], float(sys.argv[5]), float(sys.argv[6]), int(sys.argv[7]))
