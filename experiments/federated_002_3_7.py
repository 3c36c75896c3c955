"""Figure 3.7: seven attributes, epsilon = 0.1, 3 holders (of "Data Analytics with Differential Privacy"), with our
methods added.
"""

from federated_runner import Figure, main

FIGURE = Figure.over(
    "degree",
    [1, 2, 3],
    key="3_7",
    title="Figure 3.7: seven attributes, epsilon = 0.1, 3 holders",
    data="seven",
    log=False,
    repetitions=100,
)

if __name__ == "__main__":
    main(FIGURE)
