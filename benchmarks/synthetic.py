"""Synthetic copies of Adult and Diabetes: distance from held-out rows, ours and peers', and the time a wide table takes.

    PANSTREAM_DATA=<directory> python benchmarks/synthetic.py [--peers DIR] [--install-peers] [--only-ours] [--only TABLE]

Adult as in docs/howto/synthetic-table.md: 13 attributes, 39,073 rows to learn from, 9,769 others to compare with. Diabetes: 43
attributes, four fifths of 71,518 rows to learn from, the others to compare with. The figure is the mean total variation distance
over all two-way marginals (78 and 903), mean over five seeds of the noise on one fixed split. Independent attributes draw from the
same seeds, so that a learner that chooses no edges has exactly their figure. Full data from PANSTREAM_DATA (adult.csv.gz,
diabetes43.csv.gz); without it the bundled sample of Adult, for which only the comparison with independent attributes is a target.
Diabetes has no targets of its own but time and memory. The last lines hold every target against its figure.

Seconds are of the slowest run; the target of 10 s for the tree is held against processor seconds of fitting and sampling, so
that a busy machine does not decide. Peers make one run each, in virtual environments of their own: DIR/<name>/bin/python, and are
stopped after --limit seconds of processor time. Those that ran stand beside ours of the same kind of promise. With
--install-peers missing environments are made, which takes a while; what cannot be installed is named with the reason.
"""

from __future__ import annotations

import argparse
import csv
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SEEDS = 5
EPSILONS = (0.1, 1.0)
DELTA = 1e-9
TARGETS = {("PrivBayes", 0.1): 0.085, ("PrivBayes", 1.0): 0.057, ("tree", 0.1): 0.078, ("tree", 1.0): 0.046}
PEERS = {
    "DataSynthesizer": "datasynth",
    "dpart": "dpart",
    "dpmm PrivBayes": "dpmm",
    "dpmm MST": "dpmm",
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
EXAMPLES = Path(__file__).parents[1] / "examples" / "data"


def peer_main(name: str, train: str, out: str, epsilon: float) -> None:
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
    from dpmm.models.mst import MSTGM
    from dpmm.models.priv_bayes import PrivBayesGM

    chosen = MSTGM if name == "dpmm MST" else PrivBayesGM
    model = chosen(epsilon=epsilon, delta=DELTA, domain=sizes)
    model.fit(frame)
    model.generate(len(frame)).to_csv(out, index=False)


def adult():
    """Return (train, test, whether the data is complete)."""
    from panstream.cli.synth_files import read_domain, read_rows

    folder = data_folder()
    full = folder is not None and (folder / "adult.csv.gz").exists()
    rows = read_rows((folder if full else EXAMPLES) / "adult.csv.gz", read_domain(EXAMPLES / "adult-domain.toml"))
    return *divided(rows, 39_073 if full else len(rows) * 4 // 5), full


def diabetes():
    """Return all rows of Diabetes, or None without the data."""
    import gzip
    import json

    import numpy as np

    from panstream.networks import Domain, Records

    folder = data_folder()
    if folder is None or not (folder / "diabetes43.csv.gz").exists():
        return None
    domain = Domain(json.loads((folder / "diabetes43-domain.json").read_text()))
    with gzip.open(folder / "diabetes43.csv.gz", "rt") as file:
        return Records(domain, np.loadtxt(file, delimiter=",", skiprows=1, dtype=np.int64).T)


def data_folder():
    """Return where the full data is, if anywhere."""
    folder = os.environ.get("PANSTREAM_DATA")
    return None if folder is None else Path(folder)


def divided(rows, cut):
    """Return rows to learn from, as many as said, and the others."""
    import numpy as np

    order = np.random.default_rng(0).permutation(len(rows))
    return rows.take(order[:cut]), rows.take(order[cut:])


def ours(epsilon):
    """Return our learners at one budget; the two independent ones are what the others must not be worse than."""
    from panstream.networks import PrivBayes, TreeNetwork

    return {
        "independent": PrivBayes(epsilon=epsilon, degree=0),
        "PrivBayes": PrivBayes(epsilon=epsilon),
        "independent, delta": TreeNetwork(epsilon=epsilon, delta=DELTA, degree=0),
        "tree": TreeNetwork(epsilon=epsilon, delta=DELTA),
    }


def synthesise(learner, train, seed):
    """Return synthetic rows and the number of edges."""
    from panstream.networks import balanced_sample
    from panstream.randomness import SeededSource

    with SeededSource(seed) as source:
        network = learner.fit(train, source).network
        return balanced_sample(network, len(train), source), len(network.edges)


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


def run_limited(command, folder, told, limit):
    """Run a command and all that it starts for so many seconds of processor time; return its code, None if it was stopped."""
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


def peer(name, epsilon, train, folder, limit):
    """Return the peer's synthetic rows, or the reason why there are none."""
    import json

    import numpy as np

    from panstream.networks import Records

    python = folder / PEERS[name] / "bin" / "python"
    if not python.exists():
        return "not installed"
    with tempfile.TemporaryDirectory() as folder:
        table, out = Path(folder) / "train.csv", Path(folder) / "out.csv"
        with table.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(train.domain.names)
            writer.writerows(train.codes.T.tolist())
        sizes = dict(zip(train.domain.names, train.domain.sizes, strict=True))
        table.with_suffix(".json").write_text(json.dumps(sizes))
        command = [str(python), __file__, "--peer", name, str(table), str(out), str(epsilon)]
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


def wide_table(records):
    """Time the degree-2 network on Diabetes (43 attributes, 71,518 records): targets with what was reached."""
    import resource

    from panstream.networks import PrivBayes

    start = time.perf_counter()
    learned = PrivBayes(epsilon=1.0, score="R", degree=2).fit(records)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    what = f"Diabetes, {len(records.domain)} attributes, {len(records):,} records, degree {learned.network.degree}"
    return [
        (f"{what}: fit", f"{seconds:.1f} s", "< 60 s", seconds < 60),
        (f"{what}: memory", f"{peak:.0f} MB", "< 4096 MB", peak < 4096),
    ]


def our_lines(train, test, targets, *, full):
    """Print our figures; return the targets, if there are ``targets``, with what was reached, and all figures."""
    import numpy as np

    from panstream.networks import compare

    lines, reached = [], {}
    for epsilon in EPSILONS:
        means, slowest = {}, {}
        for name, learner in ours(epsilon).items():
            synthesise(learner, train.take(range(200)), 0)  # compile first
            distances, seconds, cpu, edges = [], [], [], []
            for seed in range(SEEDS):
                start, busy = time.perf_counter(), time.process_time()
                synthetic, joined = synthesise(learner, train, seed)
                seconds.append(time.perf_counter() - start)
                cpu.append(time.process_time() - busy)
                distances.append(compare(test, synthetic).mean_two_way)
                edges.append(joined)
            means[name], slowest[name] = float(np.mean(distances)), max(cpu)
            print(
                f"{name:<18} {epsilon:>7} {means[name]:>9.4f} {np.std(distances):>7.4f} {np.mean(edges):>6.1f} "
                f"{max(seconds):>8.1f} {max(cpu):>6.1f}",
                flush=True,
            )
        reached |= {(name, epsilon): mean for name, mean in means.items()}
        if not targets:
            continue
        at = f"epsilon {epsilon}"
        for name in ("PrivBayes", "tree"):
            target = targets[name, epsilon]
            if full:
                lines.append((f"{name}, {at}", f"{means[name]:.4f}", f"<= {target}", means[name] <= target))
            base = means["independent" if name == "PrivBayes" else "independent, delta"]
            lines.append(
                (f"{name} beside independent, {at}", f"{means[name]:.4f}", f"<= {base:.4f}", means[name] <= base)
            )
        lines.append((f"tree, fit and sample, {at}", f"{slowest['tree']:.1f} s", "< 10 s", slowest["tree"] < 10))
    return lines, reached


def peer_lines(what, train, test, folder, limit, reached):
    """Print what the peers reached, and which could not be run; return a line for each that ran, beside ours of its kind."""
    from panstream.networks import compare

    lines = []
    for name in PEERS:
        for epsilon in EPSILONS:
            start = time.perf_counter()
            synthetic = peer(name, epsilon, train, folder, limit)
            if isinstance(synthetic, str):
                print(f"{name:<18} {epsilon:>7} {synthetic}", flush=True)
                continue
            distance, spent = compare(test, synthetic).mean_two_way, time.perf_counter() - start
            print(f"{name:<18} {epsilon:>7} {distance:>9.4f} {'1 run':>7} {'':>6} {spent:>8.1f}", flush=True)
            ours = "PrivBayes" if name in PURE else "tree"
            mean = reached[ours, epsilon]
            figure = f"{mean:.4f} to {distance:.4f}"
            lines.append((f"{what}, epsilon {epsilon}: {ours} to {name}", figure, "not worse", mean <= distance))
    return lines


def install_all(folder):
    """Make the environments that are missing, and say which cannot be made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in dict.fromkeys(PEERS.values()):
        if not (folder / name / "bin" / "python").exists():
            problem = install(folder, name)
            print(f"{name}: {'not installable here: ' + problem if problem else 'installed'}", flush=True)


def heading(what, train, test):
    """Print what is compared and the head of its table."""
    from panstream.networks import compare

    print(
        f"\n{what}: {len(train):,} rows to learn from, {len(test):,} to compare with, {len(train.domain)} attributes; "
        f"learned and held-out rows are {compare(train, test).mean_two_way:.4f} apart"
    )
    print(f"{'method':<18} {'epsilon':>7} {'distance':>9} {'spread':>7} {'edges':>6} {'seconds':>8} {'cpu':>6}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Synthetic Adult and Diabetes: ours and peers.")
    parser.add_argument(
        "--peers",
        type=Path,
        default=Path(os.environ.get("PANSTREAM_PEERS", "peers")),
        help="directory of the peers' environments, or PANSTREAM_PEERS",
    )
    parser.add_argument("--install-peers", action="store_true", help="make the environments that are missing")
    parser.add_argument("--only-ours", action="store_true")
    parser.add_argument("--only", choices=("adult", "diabetes"), help="one of the two tables")
    parser.add_argument("--limit", type=int, default=1200, help="seconds of processor time for one run of a peer")
    given = parser.parse_args()
    if given.install_peers:
        install_all(given.peers)
    lines = []
    wide = None if given.only == "adult" else diabetes()
    if wide is not None:
        lines += wide_table(wide)  # first, for its memory
    if given.only != "diabetes":
        train, test, full = adult()
        heading("Adult" if full else "Adult (bundled sample)", train, test)
        found, reached = our_lines(train, test, TARGETS, full=full)
        lines = found + lines
        if not given.only_ours:
            lines += peer_lines("Adult", train, test, given.peers, given.limit, reached)
    if wide is not None:
        train, test = divided(wide, len(wide) * 4 // 5)
        heading("Diabetes", train, test)
        _, reached = our_lines(train, test, {}, full=True)
        if not given.only_ours:
            lines += peer_lines("Diabetes", train, test, given.peers, given.limit, reached)
    width = max(len(line[0]) for line in lines) + 2
    print()
    for name, figure, target, met in lines:
        print(f"{name:{width}}{figure:<12}{target:<12}{'pass' if met else 'FAIL'}")
    return int(not all(met for *_, met in lines))


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--peer":
        peer_main(sys.argv[2], sys.argv[3], sys.argv[4], float(sys.argv[5]))
    else:
        raise SystemExit(main())
