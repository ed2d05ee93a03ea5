// Package campaignfile reads campaign.yaml and cell.yaml.
//
// Promise: a file is read to its end and every fault is told at once, each with
// its path ("skus[0].reserve"), line, column and the rule it breaks. Nothing is
// guessed and nothing repaired: an unknown or repeated key, a number with a
// sign, a point or an exponent where units belong, an instant without offset, a
// duration without unit, an alias or a tag is a fault. What is left out gets the
// documented default; what has none is a fault.
//
// The rules of a campaign are core's (CampaignSpec.Check); this package adds
// those of the text and finds the line of each. Where a value could not be read,
// its rules are not told a second time.
//
// Bounds: 1 MiB of text, nesting of at most 64.
//
// Neighbours: api parses with it for ValidateCampaign, CreateCampaign and
// PreviewSplit; cellctl parses cell.yaml with ParseCell on the operator's side.
package campaignfile
