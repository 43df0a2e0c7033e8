// Package chart draws lines, bars, images and texts as SVG and as PNG.
//
// # Contract
//
//	chart.C1  Lengths are pixels of the PNG and units of the SVG. y points down.
//	chart.C2  A line is interrupted at a coordinate that is not finite. A single point is drawn as
//	          a dot.
//	chart.C3  Texts stay texts in the SVG, and the SVG is well formed for any text. The PNG uses
//	          the Go font (Latin, Greek, Cyrillic).
//
// This package exists because of size. gonum/plot links twelve fonts and a PDF writer into every
// program, which adds 3 MB to the Python package. This package links one font of 70 kB and
// golang.org/x/image, which is needed for still images anyway.
package chart
