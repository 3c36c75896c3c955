"""Figure 4.11 of "Data Analytics with Differential Privacy": probability of error, Zipf stream."""

from runner import main

if __name__ == "__main__":
    main("002-4.11")
