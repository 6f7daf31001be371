"""Does not end by itself."""

import time

while True:
    time.sleep(1)
