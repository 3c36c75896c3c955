"""Figure 3.9: Diabetes, epsilon = 0.1, degree 1 (of "Data Analytics with Differential Privacy"), with our methods
added.
"""

from federated_runner import Figure, main

FIGURE = Figure.over(
    "holders",
    [3, 10, 30],
    key="3_9",
    title="Figure 3.9: Diabetes, epsilon = 0.1, degree 1",
    data="diabetes",
    store="diabetes",
    log=False,
    repetitions=20,
)

if __name__ == "__main__":
    main(FIGURE)
