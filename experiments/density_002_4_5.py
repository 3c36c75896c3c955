"""Figure 4.5 of "Data Analytics with Differential Privacy": proposed sample size for the optimal Bernoulli estimator."""

from runner import main

if __name__ == "__main__":
    main("002-4.5")
