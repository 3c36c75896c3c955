"""Figure 4.8 of "Data Analytics with Differential Privacy": mean squared error, uniform stream."""

from runner import main

if __name__ == "__main__":
    main("002-4.8")
