"""A network of patients, learned from a stream by a machine that keeps no patient.

A clinic registers patients as they come and forgets each at once: all that stays are noisy tables of every attribute
and of every pair. One copy of the machine's memory, at any time, and everything that is published are together
(epsilon, delta)-differentially private for one record; several records of one patient add up. At the end of every
quarter the tables are published, and a network is learned from them. Run it:

    python examples/streaming_network.py
"""

import numpy as np

from panstream.core import NoiseSource
from panstream.models.networks import Bins, Domain, Records, StreamingTables, balanced_sample, compare

DOMAIN = Domain(
    {
        "age": Bins([0, 18, 40, 65, 80, 120], clip=True, whole=True),
        "ward": ["medicine", "surgery", "heart"],
        "diabetic": ["no", "yes"],
        "stay": ["1-2 days", "3-6 days", "a week or more"],
    }
)


def patients(count: int, seed: int) -> dict[str, list[object]]:
    """Made-up arrivals, so that the example runs anywhere."""
    rng = np.random.default_rng(seed)
    age = rng.gamma(9.0, 6.5, count).round()
    diabetic = rng.random(count) < np.clip(age / 160, 0.02, 0.6)
    ward = np.where(rng.random(count) < age / 200, "heart", np.where(rng.random(count) < 0.5, "medicine", "surgery"))
    days = rng.poisson(2.0 + 3.0 * (ward == "heart") + 2.0 * diabetic)
    stay = np.select([days < 3, days < 7], ["1-2 days", "3-6 days"], "a week or more")
    return {
        "age": age.tolist(),
        "ward": ward.tolist(),
        "diabetic": np.where(diabetic, "yes", "no").tolist(),
        "stay": stay.tolist(),
    }


def main() -> None:
    tables = StreamingTables(domain=DOMAIN, epsilon=1.0, delta=1e-6, horizon=4)
    monitor = tables.start()
    print(monitor.claim())
    print(f"\nrecords from which noise moves a pair's table by .05 or less: {tables.records_needed(0.05):,.0f}\n")
    for quarter in range(4):
        for day in range(90):  # every day's patients are counted and gone
            monitor.update(patients(60, seed=90 * quarter + day))
        print(f"quarter {quarter + 1}: {monitor.tick()}")

    learned = tables.model(monitor.state)  # from published numbers only: this costs nothing more
    print("\nlength of stay on the heart ward:", learned.network.posterior(["stay"], {"ward": "heart"}).round(2))

    # Exact figures: fine here, where the patients are made up.
    arrived = [Records.read(patients(60, seed=day), DOMAIN).codes for day in range(360)]
    truth = Records(DOMAIN, np.concatenate(arrived, axis=1))
    with NoiseSource() as rng:
        synthetic = balanced_sample(learned.network, learned.records, rng)
    print(f"distance of two-way tables from those of all patients: {compare(truth, synthetic).mean_two_way:.3f}")


if __name__ == "__main__":
    main()
