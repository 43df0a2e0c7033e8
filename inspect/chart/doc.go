// Package chart draws lines, bars, images and texts, once, as SVG and as PNG.
//
// Contract
//
//	C1  Lengths are pixels of the PNG and units of the SVG; y points down, as in both.
//	C2  A line is interrupted where a coordinate is not finite; of a single point it is a dot.
//	C3  Texts stay texts: whatever they hold, the SVG is well formed. The PNG has the letters of the Go font (Latin, Greek, Cyrillic).
//
// It is 550 lines of our own because of size: gonum/plot, which stood here, links twelve fonts and
// a PDF writer into every program, 3 MB of the Python package. This links one font of 70 kB and
// golang.org/x/image, which still images need anyway.
package chart
