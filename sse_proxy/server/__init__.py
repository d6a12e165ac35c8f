"""The aiohttp layer around the core: what waits, counts and logs."""
