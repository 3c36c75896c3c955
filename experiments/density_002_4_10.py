"""Figure 4.10 of "Data Analytics with Differential Privacy": probability of error, uniform stream."""

from runner import main

if __name__ == "__main__":
    main("002-4.10")
