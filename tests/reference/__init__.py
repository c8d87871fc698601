"""Random graphs, legal and illegal, on tosajax and on Arm's reference model."""
