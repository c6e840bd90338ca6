"""Why a cell is wrong: explanations, stages and artifacts."""
