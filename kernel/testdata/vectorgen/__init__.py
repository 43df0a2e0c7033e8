"""What generate.py and generate_voxels.py are made of: numbers, plans and values by the words of kernels.md, and the cases by theme."""
