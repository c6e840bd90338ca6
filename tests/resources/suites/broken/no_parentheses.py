from recapture import case


@case
def bare(x):
    return x
