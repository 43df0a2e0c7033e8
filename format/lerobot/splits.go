package lerobot

import (
	"fmt"
	"maps"

	"github.com/goatnote-inc/robocache"
)

// extendSplits adds the recovered episodes, which begin at position known, to the splits that
// contain all episodes before them. If there is no such split, it adds them to the splits that end
// at the last of these episodes.
//
// The table may list some recovered episodes under an index that occurs twice. Some writers of
// splits count such a row of the table, and others do not. A split is therefore complete if it ends
// at known, or if it ends at the last listed episode.
func (d *Dataset) extendSplits(known int) {
	e := d.episodes
	listed := e.count() - e.unlisted // position after the last episode of the table
	if known == e.count() {
		return
	}
	complete, last := map[string][]int{}, map[string][]int{}
	end := 0
	for name := range d.About.Splits {
		positions, err := d.About.SplitEpisodes(name)
		if err != nil || len(positions) == 0 {
			continue
		}
		splitEnd := positions[len(positions)-1] + 1
		if splitEnd > end {
			end = splitEnd
			last = map[string][]int{}
		}
		if splitEnd == end {
			last[name] = positions
		}
		if splitEnd == len(positions) && (splitEnd == known || splitEnd == listed) {
			complete[name] = positions
		}
	}
	if len(complete) == 0 && (end == known || end == listed) {
		complete = last
	}
	splits := maps.Clone(d.About.Splits)
	for name, positions := range complete {
		for pos := positions[len(positions)-1] + 1; pos < e.count(); pos++ {
			positions = append(positions, pos)
		}
		splits[name] = robocache.Spans(positions)
	}
	d.About.Splits = splits
}

// reportUnsplit reports episodes that belong to no split. It is a warning if the splits have all
// episodes before them, because episodes were probably added later. Other splits are partial on
// purpose.
func (d *Dataset) reportUnsplit() {
	info := d.About
	isSplit := make([]bool, info.Episodes)
	for name := range info.Splits {
		positions, err := info.SplitEpisodes(name)
		if err != nil {
			return
		}
		for _, pos := range positions {
			isSplit[pos] = true
		}
	}
	var unsplit []int
	for pos, ok := range isSplit {
		if !ok {
			unsplit = append(unsplit, pos)
		}
	}
	if len(unsplit) == 0 || len(unsplit) == info.Episodes {
		return // splits without episodes select nothing
	}
	f := robocache.Finding{
		Severity: robocache.SeverityInfo, Code: "episodes-without-split",
		Where: robocache.Where{"file": infoPath, "pointer": "/splits"},
		Message: fmt.Sprintf("%d of %d episodes belong to no split (%s): "+
			"a Loader that reads a split leaves them out", len(unsplit),
			info.Episodes, robocache.Spans(unsplit)),
		Count: int64(len(unsplit)),
	}
	if unsplit[0]+len(unsplit) == info.Episodes {
		f.Severity = robocache.SeverityWarning
		f.Hint = "write a split that ends where the episodes end, or read all episodes: " +
			robocache.Option("split", robocache.SplitAll)
	}
	d.addFinding(f)
}
