"""Figure 4.2 of "Data Analytics with Differential Privacy": Dwork: state differential privacy."""

from runner import main

if __name__ == "__main__":
    main("002-4.2")
