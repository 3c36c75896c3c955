"""Figure 3.4: seven attributes, 3 holders, degree 1 (of "Data Analytics with Differential Privacy"), with our
methods added.
"""

from federated_runner import Figure, main

FIGURE = Figure.over(
    "epsilon",
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2],
    key="3_4",
    title="Figure 3.4: seven attributes, 3 holders, degree 1",
    data="seven",
    log=True,
    repetitions=100,
)

if __name__ == "__main__":
    main(FIGURE)
