"""Kill, stop, cut and drain what sessions run on, and hold every client's text against an undisturbed one."""
