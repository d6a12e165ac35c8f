"""`python -m sse_proxy`: the command line."""

from sse_proxy.cli import main

if __name__ == "__main__":
    main()
