// Package report writes the table of package quality as one HTML page without scripts and without
// other files: findings, the worst episodes with images, the distribution of each metric by task,
// and the states that the episodes cover. The colours follow the light or dark scheme of the
// reader.
package report
