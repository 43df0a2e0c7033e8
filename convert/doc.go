// Package convert writes any dataset in any format that has a writer. It knows no format: it
// settles what is the same for all, and calls the writer that the format registered
// (robocache.Format.Write).
//
// # Contract
//
//	C5  The destination must be empty. An error or the end of the context leaves nothing behind, no folder either.
//	C6  Nothing is dropped silently. What the source found, when it was opened and while it was read (robocache.Findings), is in the report,
//	    whatever the format that is written.
//	C7  A source whose streams have clocks of their own, and one for which Options.Align asks, is brought onto one grid (align.View): at
//	    Align's rate, else FPS, else the source's own. Clocks are left alone where the format keeps them (robocache.Format.Clocks).
//	    A stream without a max_gap has that of its own rhythm (align.ViewOptions.Rhythm); rows in gaps are masked, and counted in a finding.
//	C10 Streams of which no two instants meet are refused by name, with the timestamps that do not meet (ErrMisuse).
//	C12 Episodes and keys that the source does not have are refused, and so are files that opening could not read, unless bad episodes are skipped.
//
// C1 to C4, C8, C9 and C11, and what C5 says of a kill, are of LeRobot's writer
// (format/lerobot/write).
package convert
