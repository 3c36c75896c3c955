"""Figure 3.6: seven attributes, epsilon = 0.1, degree 1 (of "Data Analytics with Differential Privacy"), with our
methods added.
"""

from federated_runner import Figure, main

FIGURE = Figure.over(
    "holders",
    [1, 3, 5, 10, 20, 30],
    key="3_6",
    title="Figure 3.6: seven attributes, epsilon = 0.1, degree 1",
    data="seven",
    log=False,
    repetitions=100,
)

if __name__ == "__main__":
    main(FIGURE)
