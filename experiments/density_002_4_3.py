"""Figure 4.3 of "Data Analytics with Differential Privacy": Dwork: allocated and actual privacy budget."""

from runner import main

if __name__ == "__main__":
    main("002-4.3")
