from recapture import case


@case(held_out=[])
def lonely(x):
    return x
