"""Figure 4.9 of "Data Analytics with Differential Privacy": mean squared error, Zipf stream."""

from runner import main

if __name__ == "__main__":
    main("002-4.9")
