"""Why a recorded cell is not right, in one sentence, derived from the records alone."""
