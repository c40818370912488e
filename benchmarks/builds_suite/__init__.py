"""Two builds of Millstream, an older one and this one, under the same load in alternation."""
