"""A picture file becomes pixels, in processes of their own."""
