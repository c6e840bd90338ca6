"""Eager against captured code: one cell, from its first call to its verdict.

The judge imports torch, the standard library, and of this project `torch_api`, `records`, `cases` and `base`. It knows
nothing of processes, files of results and reports: `recapture.run` gives it one cell at a time.

One cell, file by file:

1. `steps` carries out the steps in order: eager twice, the capture with the example, the captured callable on every
   input, and the original once more. `steps.carry_out` is where to begin reading.
2. `fresh_case` executes the case's file anew for each side, so that the two share no state. `placement` puts the
   arguments on the device as they were made: views stay views, with their gradients and attributes.
3. `observe` makes one call and keeps all that it did: the result, the arguments after it, what it printed, the
   exception, the gradients of a backward, and the settings of torch (`torch_state`) and of the process
   (`process_state`). `snapshot` turns any Python value into plain data that later calls cannot change, with `contents`
   for what containers, iterators and functions hold. `reachable` finds the state that the function can change besides
   its arguments, and puts it back before the other side. `aliases` finds results that share memory. `large_tensors`
   lets observations share copies of parameters that are the same.
4. `compare` compares the captured call with eager's, part by part: types, structure, dtypes, shapes, values, effects.
   Each difference is silent, and decides the verdict, or it is a note.
5. `rounding` decides whether other numbers are explained by rounding. `reference` runs eager again with noise for it,
   `perturbation` puts the noise into each operator, `operators` says how each of them rounds, and `noise` draws it.
   `repetition` decides whether eager's own runs differ by rounding alone, from runs that `float64` makes more precise.
   `wording` gives both sides of a difference enough digits to see it.
6. `later_calls` finds the differences in attributes of a module that no later call and no reader of public state sees:
   those are notes. `earlier_calls` finds what a call overwrites of earlier results.
7. `verdict` turns the events of the cell into a verdict, by seven rules in order. `version` is the number to raise when
   a change of these files can change a verdict.

Before the first cell of a run, `readiness` asks whether planted differences between tensors are seen at all.
`packing` puts all of this into one archive, for a script that shows the cell where this project is not installed.
"""
