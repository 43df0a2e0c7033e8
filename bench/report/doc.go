// Package report writes what was measured: tables, plots and spreads, with the machine, in one form
// for every kind of case. A Document becomes JSON, CSV, Markdown, plots as PNG and SVG, and one
// HTML page that needs no other file.
package report
