"""Figure 4.6 of "Data Analytics with Differential Privacy": the Laplace laws of a stored value."""

from runner import main

if __name__ == "__main__":
    main("002-4.6")
