"""Why a cell is wrong: `recapture explain`, `stage`, `reduce` and `repro`."""
