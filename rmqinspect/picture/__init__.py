"""The map of a store: its model, a row of a terminal, a picture in a page.

documents.picture_of(report, forecast, groups)      the picture, None from a report of an earlier version
bar.bar(picture, width)                             a row of a terminal
drawing.figure(picture, name)                       the element of a page: SVG, legend, and the data as JSON
drawing.style(), drawing.script()                   picture.css, picture.js: once in a page
"""
