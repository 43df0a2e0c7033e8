package verbs

import (
	"context"
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/diagnose"
	"github.com/goatnote-inc/robocache/edit"
	"github.com/goatnote-inc/robocache/mapping"
)

// DoctorRequest holds the options of Doctor.
type DoctorRequest struct {
	// URI is the dataset.
	URI string `json:"-" arg:"URI"`
	// Destination is the folder of the repaired dataset, with Fix.
	Destination string `json:"-" arg:"[DST]"`
	Opening
	// Decode decodes every image too.
	Decode bool `json:"decode"`
	// Deep reads every column of every data file to its last page.
	Deep bool `json:"deep"`
	// Episodes lists the indices of the episodes to examine, such as 0,3,5-9; empty: all.
	Episodes string `json:"episodes"`
	// Verbose makes the text of the command line list every finding. The result always has all.
	Verbose bool `json:"verbose"`
	// Fix plans the edit that removes findings, and makes it if there is a place for the result.
	Fix bool `json:"fix"`
	// DropBad leaves out episodes with findings that no edit removes.
	DropBad bool `json:"drop_bad"`
	// InPlace puts the repaired dataset in the place of the damaged one.
	InPlace bool `json:"in_place"`
}

// Diagnosis is the result of Doctor: the findings of a dataset.
type Diagnosis struct {
	URI      string              `json:"uri"`
	Format   string              `json:"format"`
	Version  string              `json:"version"`
	Episodes int                 `json:"num_episodes"`
	Frames   int64               `json:"num_frames"`
	Findings []robocache.Finding `json:"findings"`
	Errors   int                 `json:"errors"`
	Warnings int                 `json:"warnings"`
	Fix      *edit.Fixed         `json:"fix,omitempty"` // of DoctorRequest.Fix
}

// HasFindings reports whether the dataset has errors or warnings. An edit that was made removed
// them.
func (d *Diagnosis) HasFindings() bool {
	if d.Fix != nil && d.Fix.Report != nil && !d.Fix.Report.DryRun {
		return false
	}
	return AnyWrong(d.Findings)
}

// Doctor examines a dataset, and repairs it if r.Fix is set. It returns the diagnosis together with
// an error if findings stayed after the repair.
func Doctor(ctx context.Context, r *DoctorRequest, o Observer) (*Diagnosis, error) {
	look := robocache.DiagnoseOptions{Decode: r.Decode, Deep: r.Deep}
	switch name := optionName; {
	case r.Fix && r.Episodes != "":
		return nil, misuse("doctor: %s does not go with %s, which writes a whole dataset",
			name("episodes"), name("fix"))
	case !r.Fix && (r.DropBad || r.InPlace || r.Destination != ""):
		return nil, misuse("doctor: a destination, %s and %s go with %s",
			name("in_place"), name("drop_bad"), name("fix"))
	}
	opt, err := r.Options()
	if err != nil {
		return nil, err
	}
	opt.Repair = true // doctor opens what other verbs reject
	if r.Fix {
		return repair(ctx, r, opt, look)
	}
	ds, err := mapping.Open(ctx, r.URI, opt)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	if look.Episodes, err = ds.Info().ParseEpisodes(r.Episodes); err != nil {
		return nil, err
	}
	look.Progress = o.countIn("parts")
	findings, err := diagnose.Run(ctx, ds, look)
	if err != nil {
		return nil, err
	}
	ahead, err := lookAheadFindings(ctx, ds)
	if err != nil {
		return nil, err
	}
	info := ds.Info()
	d := &Diagnosis{
		URI: info.URI, Format: info.Format, Version: info.Version,
		Episodes: info.Episodes, Frames: info.Frames,
		Findings: append(append([]robocache.Finding{}, findings...), ahead...),
	}
	for _, f := range d.Findings {
		switch f.Severity {
		case robocache.SeverityError:
			d.Errors++
		case robocache.SeverityWarning:
			d.Warnings++
		}
	}
	return d, nil
}

// repair plans or makes the edit that removes findings.
func repair(
	ctx context.Context, r *DoctorRequest,
	opt robocache.OpenOptions, look robocache.DiagnoseOptions,
) (*Diagnosis, error) {
	x, err := edit.Fix(ctx, &edit.Request{
		Sources: []string{r.URI}, DST: r.Destination, InPlace: r.InPlace,
		DryRun: r.Destination == "" && !r.InPlace, Open: opt,
	}, look, r.DropBad)
	if err != nil {
		return nil, err
	}
	findings := append(append([]robocache.Finding{}, x.Fixable...), x.Beyond...)
	d := &Diagnosis{
		URI: r.URI, Format: x.Info.Format, Version: x.Info.Version,
		Episodes: x.Info.Episodes, Frames: x.Info.Frames, Findings: findings, Fix: x,
	}
	if report := x.Report; report != nil {
		d.Format, d.Episodes, d.Frames = report.Format, report.Episodes, report.Frames
	}
	for _, f := range d.Findings {
		if f.Severity == robocache.SeverityError {
			d.Errors++
		} else {
			d.Warnings++
		}
	}
	if n := len(x.Stayed); n > 0 {
		return d, fmt.Errorf("doctor %s: %d findings stayed", optionName("fix"), n)
	}
	return d, nil
}
