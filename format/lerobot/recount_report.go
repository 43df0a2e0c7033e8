package lerobot

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
)

// maxListed bounds the findings of one kind that Open lists; the last one counts the others. Open
// for doctor lists all of them (OpenOptions.Repair).
const maxListed = 20

// report adds a finding of Open, or counts it in the last of its kind.
func (d *Dataset) report(f robocache.Finding) {
	listed, last := 0, 0
	for i := 0; i < len(d.About.Findings) && !d.repair; i++ {
		if d.About.Findings[i].Code == f.Code {
			listed, last = listed+1, i
		}
	}
	f.Count = max(1, f.Count)
	if listed >= maxListed {
		d.About.Findings[last].Count += f.Count
		return
	}
	d.find(f)
}

func fixTableHint() string {
	return "run " + robocache.Command(
		"doctor --fix --in-place",
	) + ": it writes the table by the data"
}

func (d *Dataset) reportLength(pos int, file string, rows int32) {
	says := fmt.Sprintf("says %d rows", d.eps.length[pos])
	switch fault := d.eps.unsure[pos]; {
	case fault.column == "length" && d.eps.length[pos] == 0:
		says = "does not say how many rows the episode has (" + fault.message + ")"
	case fault.column == "dataset_to_index":
		says += ", its dataset_from_index and dataset_to_index say another number"
	}
	d.report(robocache.Finding{
		Severity: robocache.SeverityError, Code: "episode-length",
		Where:   robocache.Where{"file": d.episodesFile(), "episode": d.eps.id(pos)},
		Message: fmt.Sprintf("the table %s; %s has %d rows, which are read", says, file, rows),
		Hint:    fixTableHint(),
	})
}

func (d *Dataset) reportLost(pos int, file string, rows int64) {
	d.report(robocache.Finding{
		Severity: robocache.SeverityError, Code: "rows-missing",
		Where: robocache.Where{"file": file, "episode": d.eps.id(pos)},
		Message: fmt.Sprintf("the file has %d rows of the episode, the episodes table says %d: "+
			"rows are lost", rows, d.eps.length[pos]),
		Hint: rowsLostHint(), Lost: true,
	})
}

func (d *Dataset) reportStale(pos int, claimed *countedFile, file string) {
	says := "names " + claimed.name
	if claimed.name == "" {
		says = fmt.Sprintf("names file %d of chunk %d", claimed.at.file, claimed.at.chunk)
	}
	if fault := d.eps.unsure[pos]; fault.column == "data/file_index" {
		says = "names no file (" + fault.message + ")"
	}
	d.report(robocache.Finding{
		Severity: robocache.SeverityWarning, Code: "stale-pointer",
		Where: robocache.Where{
			"file": d.episodesFile(), "column": "data/file_index", "episode": d.eps.id(pos),
		},
		Message: fmt.Sprintf("the table %s, the rows are in %s", says, file),
		Hint:    fixTableHint(),
	})
}

// reportFault reports a value of the table that cannot be right, of an episode whose length and
// file in use are those of the data.
func (d *Dataset) reportFault(pos int, fault tableFault) {
	d.report(robocache.Finding{
		Severity: robocache.SeverityWarning,
		Code:     "table-value",
		Where: robocache.Where{
			"file":    d.episodesFile(),
			"column":  fault.column,
			"episode": d.eps.id(pos),
		},
		Message: "the table is wrong: " + fault.message + "; the rows of the data are read",
		Hint:    fixTableHint(),
	})
}
