// Package report writes measurements: tables, plots and spreads, with a description of the machine.
// A Document is written as JSON, CSV, Markdown, plots (PNG and SVG), and one HTML page that needs
// no other file.
package report
