"""Figure 3.8: Diabetes, 3 holders, degree 1 (of "Data Analytics with Differential Privacy"), with our methods added."""

from federated_runner import Figure, main

FIGURE = Figure.over(
    "epsilon",
    [0.1, 0.5, 1, 2],
    key="3_8",
    title="Figure 3.8: Diabetes, 3 holders, degree 1",
    data="diabetes",
    store="diabetes",
    log=True,
    repetitions=20,
)

if __name__ == "__main__":
    main(FIGURE)
