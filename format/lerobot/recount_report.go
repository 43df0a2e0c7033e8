package lerobot

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
)

// maxListed bounds the findings of one kind that Open lists; the last one counts the others. With
// OpenOptions.Repair, as doctor opens it, all are listed.
const maxListed = 20

// reportCounted adds a finding of Open, or counts it in the last one of its kind.
func (d *Dataset) reportCounted(f robocache.Finding) {
	listed, last := 0, 0
	for i := 0; i < len(d.About.Findings) && !d.repair; i++ {
		if d.About.Findings[i].Code == f.Code {
			listed++
			last = i
		}
	}
	f.Count = max(1, f.Count)
	if listed >= maxListed {
		d.About.Findings[last].Count += f.Count
		return
	}
	d.addFinding(f)
}

// fixTableHint returns the hint about a table that differs from the data files.
func fixTableHint() string {
	return "run " + robocache.Command("doctor --fix --in-place") +
		": it writes the table by the data"
}

// reportLength reports an episode whose length in the table is wrong.
func (d *Dataset) reportLength(pos int, file string, rows int32) {
	statement := fmt.Sprintf("states %d rows", d.episodes.length[pos])
	fault := d.episodes.unsure[pos]
	switch {
	case fault.column == "length" && d.episodes.length[pos] == 0:
		statement = "does not state the number of rows of the episode (" + fault.message + ")"
	case fault.column == "dataset_to_index":
		statement += ", its dataset_from_index and dataset_to_index state another number"
	}
	d.reportCounted(robocache.Finding{
		Severity: robocache.SeverityError, Code: "episode-length",
		Where:   robocache.Where{"file": d.episodesFile(), "episode": d.episodes.indexAt(pos)},
		Message: fmt.Sprintf("the table %s; %s has %d rows, which are read", statement, file, rows),
		Hint:    fixTableHint(),
	})
}

// reportLost reports an episode with fewer rows in the data than in the table.
func (d *Dataset) reportLost(pos int, file string, rows int64) {
	d.reportCounted(robocache.Finding{
		Severity: robocache.SeverityError, Code: "rows-missing",
		Where: robocache.Where{"file": file, "episode": d.episodes.indexAt(pos)},
		Message: fmt.Sprintf("the file has %d rows of the episode, the episodes table states %d: "+
			"rows are lost", rows, d.episodes.length[pos]),
		Hint: rowsLostHint(), Lost: true,
	})
}

// reportStale reports an episode whose rows are in another file than the table names.
func (d *Dataset) reportStale(pos int, claimed *countedFile, file string) {
	statement := "names " + claimed.name
	if claimed.name == "" {
		statement = fmt.Sprintf("names file %d of chunk %d", claimed.at.file, claimed.at.chunk)
	}
	if fault := d.episodes.unsure[pos]; fault.column == "data/file_index" {
		statement = "names no file (" + fault.message + ")"
	}
	d.reportCounted(robocache.Finding{
		Severity: robocache.SeverityWarning, Code: "stale-pointer",
		Where: robocache.Where{
			"file":    d.episodesFile(),
			"column":  "data/file_index",
			"episode": d.episodes.indexAt(pos),
		},
		Message: fmt.Sprintf("the table %s, the rows are in %s", statement, file),
		Hint:    fixTableHint(),
	})
}

// reportFault reports a wrong value in the table's row of an episode. It is called if no finding about
// the length or the file of the episode already names the row.
func (d *Dataset) reportFault(pos int, fault tableFault) {
	d.reportCounted(robocache.Finding{
		Severity: robocache.SeverityWarning,
		Code:     "table-value",
		Where: robocache.Where{
			"file":    d.episodesFile(),
			"column":  fault.column,
			"episode": d.episodes.indexAt(pos),
		},
		Message: "the table is wrong: " + fault.message + "; the rows of the data are read",
		Hint:    fixTableHint(),
	})
}
