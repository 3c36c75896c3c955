"""Figure 4.1 of "Data Analytics with Differential Privacy": proposed sample size for Dwork's estimator."""

from runner import main

if __name__ == "__main__":
    main("002-4.1")
